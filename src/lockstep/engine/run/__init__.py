"""Running a project: sequencing inputs, evaluating ranges of blocks, snapshots, the spool, publishing."""
