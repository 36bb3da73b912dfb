"""What a model would do on a GPU, under a load, at a price: a step-time model, a simulator of servers, and
the error of both.
"""
