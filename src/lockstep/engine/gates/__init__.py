"""Gates: somebody outside who says which engine may try to lead."""
