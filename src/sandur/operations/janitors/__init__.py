"""The janitors: what nobody needs any more is taken away, mark, look and act, and never anything that lives."""
