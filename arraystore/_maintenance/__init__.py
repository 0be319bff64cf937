"""What keeps a repository fast, off everyone's critical path: checkpoints, history pages, folding of layers."""
