"""Editors with this server behind them: small clients for Neovim, Emacs, Jupyter and Node.js."""
