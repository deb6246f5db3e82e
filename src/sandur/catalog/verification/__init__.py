"""What must hold in a store (docs/protocol.md), decided on values."""
