"""The commands of the failover document: dfesp_xml_server, dfesp_xml_client and dfesp_fs_adapter."""
