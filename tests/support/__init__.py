"""What tests share: the harness, peers that play the other side, checks."""
