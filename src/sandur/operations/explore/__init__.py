"""What people explore: published datasets and files, as far as the caller may see them."""
