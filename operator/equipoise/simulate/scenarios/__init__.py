"""Named worlds: what traffic, on what hardware, with what cluster around it."""
