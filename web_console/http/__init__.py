"""HTTP without a product: headers of proxies, forms, limits of requests."""
