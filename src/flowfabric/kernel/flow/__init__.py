"""What may happen to a flow, its members and its edges."""
