"""What passes of a compiled model take, without running them."""
