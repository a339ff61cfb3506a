"""dnn-partitioning: graphs of operators, read and written."""
