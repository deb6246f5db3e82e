"""What people change: each action has a form, a preview, and one operation that the APIs call, too."""
