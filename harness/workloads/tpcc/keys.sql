-- After the rows: two indexes that the transactions need, for customers by name and for a
-- customer's last order.

ALTER TABLE customer ADD INDEX customer_by_name (c_w_id, c_d_id, c_last, c_first);

ALTER TABLE orders ADD INDEX orders_by_customer (o_w_id, o_d_id, o_c_id, o_id);
