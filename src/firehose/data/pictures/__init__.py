"""Pictures as posts: MNIST, Fashion-MNIST, CIFAR-10, and the tasks made from them."""
