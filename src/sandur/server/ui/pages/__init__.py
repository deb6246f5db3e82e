"""The handlers of the pages: each calls operations, makes a view, and renders it."""
