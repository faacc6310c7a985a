"""The pipeline beside Spark's own JDBC: `make bench ARGS="--only spark"`."""
