"""What all buses over a network share: everything between the port and a vendor's client."""
