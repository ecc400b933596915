"""What a run says to people: a summary, rows for a table, a picture."""
