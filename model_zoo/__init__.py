"""Facts about models: one card per model, and the loader that reads them."""
