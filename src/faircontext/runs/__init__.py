"""Running methods over many images and recording the answers."""
