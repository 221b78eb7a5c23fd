"""How weights move: gradients, and the rules that follow them."""
