"""One lane's life: what it reads, and the loop around it."""
