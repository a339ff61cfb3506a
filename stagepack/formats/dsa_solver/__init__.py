"""Documents of dsa-solver: allocation problems of compilers, and their solutions."""
