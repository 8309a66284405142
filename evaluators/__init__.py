"""Question modules: each turns models, methods and pairs into flat records."""
