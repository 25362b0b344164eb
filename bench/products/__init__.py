"""Install and run the other products that `make bench` compares with."""
