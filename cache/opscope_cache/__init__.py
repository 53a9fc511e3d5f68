"""Content-addressed keys and the store behind them."""
