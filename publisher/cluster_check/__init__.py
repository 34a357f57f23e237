"""What `publisher check-cluster` tries on a scratch topic of its own."""
