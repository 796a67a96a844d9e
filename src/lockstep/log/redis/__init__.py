"""The bus on Redis: one stream for each log, and scripts that change it in one step."""
