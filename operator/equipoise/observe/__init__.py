"""What is happening: signals of the engines, each known, idle or unknown."""
