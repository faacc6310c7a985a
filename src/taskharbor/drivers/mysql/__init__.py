"""`mysql://` and `mariadb://`: MySQL 8.0.17 and later, MariaDB 10.6 and later, through PyMySQL."""
