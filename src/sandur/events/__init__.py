"""What happened: receipts of commits and the feed made of them."""
