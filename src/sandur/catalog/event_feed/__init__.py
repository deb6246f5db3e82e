"""Events for readers: their form, subscriptions, and deliveries by webhook, as pure values."""
