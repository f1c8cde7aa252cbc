"""What SafeProducer costs, measured against the stock producer in the same process at the same time."""
