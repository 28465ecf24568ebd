"""signal/*: messages from outside, with receipts."""
