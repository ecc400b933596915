"""What hardware there is: the device catalogue, pools from nodes, what is really free."""
