"""What adapters share: checkpoints and formats, launching servers, CUDA's libraries."""
