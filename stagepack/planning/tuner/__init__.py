"""How tuning searches: plans that are made, and measurements that are asked for."""
