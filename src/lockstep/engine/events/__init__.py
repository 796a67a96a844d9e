"""What flows: typed fields, events with opcodes and flags, numbered blocks of them, as rows and as columns."""
