"""The side of the client: environments, connections to exec servers, and what runs behind them."""
