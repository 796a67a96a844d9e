"""Gates: external services that say which engine may try to lead."""
