"""Which modules an object holds, and what is known of the values it was made with."""
