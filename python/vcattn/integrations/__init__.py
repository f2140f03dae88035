"""vcattn inside the programs that generate video. Import the one you use."""
