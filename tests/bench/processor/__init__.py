"""What a process spends processor time on."""
