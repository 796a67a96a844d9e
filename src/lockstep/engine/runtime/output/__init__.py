"""What workers computed: spooled, published to the out streams, and read from there."""
