"""Handlers of carriers: what they do with an item of an outbox. HTTP, commands, mail, records on other streams."""
