-- The five transactions of TPC-C 5.11, a stored procedure each, one round trip each.
-- A procedure that meets an error leaves its transaction to the client, which rolls it back.
-- Rows are locked in the same order everywhere: warehouse, district, customer, stock.
//
-- New-Order (clause 2.4.2). p_lines has 16 characters per line: number (2), item (6), supplying
-- warehouse (6), quantity (2), in the order in which stock is to be locked. All lines are handled by
-- one statement per table, which costs the server half of what a loop does; tpcc_numbers, from 1 on,
-- cuts the lines. Stock is there already: what is "inserted" updates it, each line for itself, so
-- that the same item may stand in two lines. An item that does not exist leaves a line without
-- stock, and rolls everything back. Bit n of `brands` is set if line n is brand, not generic.
CREATE PROCEDURE tpcc_new_order (
    p_w_id INT, p_d_id INT, p_c_id INT, p_ol_cnt INT, p_all_local INT,
    p_lines VARCHAR(240) CHARACTER SET latin1
)
BEGIN
    DECLARE v_o_id, v_brands INT;
    DECLARE v_committed TINYINT DEFAULT 0;
    DECLARE v_w_tax, v_d_tax, v_discount DECIMAL(4, 4);
    DECLARE v_total DECIMAL(10, 2);
    DECLARE v_last VARCHAR(16) CHARACTER SET latin1;
    DECLARE v_credit CHAR(2) CHARACTER SET latin1;
    DECLARE v_now DATETIME DEFAULT NOW();

    START TRANSACTION;
    UPDATE district SET d_next_o_id = LAST_INSERT_ID(d_next_o_id) + 1
        WHERE d_w_id = p_w_id AND d_id = p_d_id;
    SET v_o_id = LAST_INSERT_ID();
    SELECT w_tax, d_tax, c_discount, c_last, c_credit
        INTO v_w_tax, v_d_tax, v_discount, v_last, v_credit
        FROM warehouse, district, customer
        WHERE w_id = p_w_id AND d_w_id = p_w_id AND d_id = p_d_id
        AND c_w_id = p_w_id AND c_d_id = p_d_id AND c_id = p_c_id;
    INSERT INTO orders (o_id, o_d_id, o_w_id, o_c_id, o_entry_d, o_carrier_id, o_ol_cnt, o_all_local)
        VALUES (v_o_id, p_d_id, p_w_id, p_c_id, v_now, NULL, p_ol_cnt, p_all_local);
    INSERT INTO new_order (no_o_id, no_d_id, no_w_id) VALUES (v_o_id, p_d_id, p_w_id);
    INSERT INTO stock (s_i_id, s_w_id, s_quantity, s_dist_01, s_dist_02, s_dist_03, s_dist_04,
            s_dist_05, s_dist_06, s_dist_07, s_dist_08, s_dist_09, s_dist_10, s_ytd, s_order_cnt,
            s_remote_cnt, s_data)
        SELECT i_id, SUBSTRING(p_lines, 16 * n - 7, 6), 0, '', '', '', '', '', '', '', '', '', '',
            SUBSTRING(p_lines, 16 * n - 1, 2), 1, SUBSTRING(p_lines, 16 * n - 7, 6) <> p_w_id, ''
        FROM tpcc_numbers
        STRAIGHT_JOIN item ON i_id = CAST(SUBSTRING(p_lines, 16 * n - 13, 6) AS SIGNED)
        WHERE n <= p_ol_cnt
        ON DUPLICATE KEY UPDATE
            s_quantity = s_quantity - VALUES(s_ytd) + IF(s_quantity >= VALUES(s_ytd) + 10, 0, 91),
            s_ytd = s_ytd + VALUES(s_ytd), s_order_cnt = s_order_cnt + 1,
            s_remote_cnt = s_remote_cnt + VALUES(s_remote_cnt);
    IF ROW_COUNT() = 2 * p_ol_cnt THEN  -- an update counts twice, an insert would count once
        INSERT INTO order_line (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, ol_supply_w_id,
                ol_delivery_d, ol_quantity, ol_amount, ol_dist_info)
            SELECT v_o_id, p_d_id, p_w_id, SUBSTRING(p_lines, 16 * n - 15, 2), i_id, s_w_id, NULL,
                SUBSTRING(p_lines, 16 * n - 1, 2), SUBSTRING(p_lines, 16 * n - 1, 2) * i_price,
                CASE p_d_id WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03
                    WHEN 4 THEN s_dist_04 WHEN 5 THEN s_dist_05 WHEN 6 THEN s_dist_06
                    WHEN 7 THEN s_dist_07 WHEN 8 THEN s_dist_08 WHEN 9 THEN s_dist_09
                    ELSE s_dist_10 END
            FROM tpcc_numbers
            STRAIGHT_JOIN item ON i_id = CAST(SUBSTRING(p_lines, 16 * n - 13, 6) AS SIGNED)
            STRAIGHT_JOIN stock ON s_i_id = i_id
                AND s_w_id = CAST(SUBSTRING(p_lines, 16 * n - 7, 6) AS SIGNED)
            WHERE n <= p_ol_cnt;
        SELECT SUM(ol_amount), BIT_OR(IF(i_data LIKE '%ORIGINAL%' AND s_data LIKE '%ORIGINAL%',
                1 << ol_number, 0))
            INTO v_total, v_brands
            FROM order_line STRAIGHT_JOIN item ON i_id = ol_i_id
            STRAIGHT_JOIN stock ON s_w_id = ol_supply_w_id AND s_i_id = ol_i_id
            WHERE ol_w_id = p_w_id AND ol_d_id = p_d_id AND ol_o_id = v_o_id;
        COMMIT;
        SET v_committed = 1;
    ELSE
        ROLLBACK;
    END IF;
    SELECT v_committed AS committed, v_o_id AS o_id, v_now AS o_entry_d, v_last AS c_last,
        v_credit AS c_credit, v_discount AS c_discount, v_w_tax AS w_tax, v_d_tax AS d_tax,
        v_total * (1 - v_discount) * (1 + v_w_tax + v_d_tax) AS total, v_brands AS brands;
END
//
-- Payment (clause 2.5.2). The customer by number, or by name if p_c_id is 0: then the one in the
-- middle, rounded up, of those with that name by first name.
CREATE PROCEDURE tpcc_payment (
    p_w_id INT, p_d_id INT, p_c_w_id INT, p_c_d_id INT, p_c_id INT,
    p_last VARCHAR(16) CHARACTER SET latin1, p_amount DECIMAL(6, 2)
)
BEGIN
    DECLARE v_c_id INT DEFAULT p_c_id;
    DECLARE v_middle INT;
    DECLARE v_w_name, v_d_name VARCHAR(10) CHARACTER SET latin1;
    DECLARE v_first, v_last VARCHAR(16) CHARACTER SET latin1;
    DECLARE v_credit CHAR(2) CHARACTER SET latin1;
    DECLARE v_discount DECIMAL(4, 4);
    DECLARE v_balance, v_limit DECIMAL(12, 2);
    DECLARE v_data VARCHAR(200) CHARACTER SET latin1;
    DECLARE v_now DATETIME DEFAULT NOW();

    START TRANSACTION;
    UPDATE warehouse SET w_ytd = w_ytd + p_amount WHERE w_id = p_w_id;
    UPDATE district SET d_ytd = d_ytd + p_amount WHERE d_w_id = p_w_id AND d_id = p_d_id;
    IF p_c_id = 0 THEN
        SELECT (COUNT(*) - 1) DIV 2 INTO v_middle FROM customer
            WHERE c_w_id = p_c_w_id AND c_d_id = p_c_d_id AND c_last = p_last;
        SELECT c_id INTO v_c_id FROM customer
            WHERE c_w_id = p_c_w_id AND c_d_id = p_c_d_id AND c_last = p_last
            ORDER BY c_first LIMIT v_middle, 1;
    END IF;
    UPDATE customer SET c_balance = c_balance - p_amount, c_ytd_payment = c_ytd_payment + p_amount,
        c_payment_cnt = c_payment_cnt + 1,
        c_data = IF(c_credit = 'BC', LEFT(CONCAT(v_c_id, ' ', p_c_d_id, ' ', p_c_w_id, ' ', p_d_id,
            ' ', p_w_id, ' ', p_amount, '|', c_data), 500), c_data)
        WHERE c_w_id = p_c_w_id AND c_d_id = p_c_d_id AND c_id = v_c_id;
    SELECT w_name, d_name, c_first, c_last, c_credit, c_credit_lim, c_discount, c_balance,
        IF(c_credit = 'BC', LEFT(c_data, 200), '')
        INTO v_w_name, v_d_name, v_first, v_last, v_credit, v_limit, v_discount, v_balance, v_data
        FROM warehouse, district, customer
        WHERE w_id = p_w_id AND d_w_id = p_w_id AND d_id = p_d_id
        AND c_w_id = p_c_w_id AND c_d_id = p_c_d_id AND c_id = v_c_id;
    INSERT INTO history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data)
        VALUES (v_c_id, p_c_d_id, p_c_w_id, p_d_id, p_w_id, v_now, p_amount,
            CONCAT(v_w_name, '    ', v_d_name));
    COMMIT;
    SELECT v_c_id AS c_id, v_first AS c_first, v_last AS c_last, v_credit AS c_credit,
        v_limit AS c_credit_lim, v_discount AS c_discount, v_balance AS c_balance,
        v_data AS c_data, v_now AS h_date;
END
//
-- Order-Status (clause 2.6.2). The customer as in Payment, his last order, and its lines: one row
-- per line, each with the customer and the order.
CREATE PROCEDURE tpcc_order_status (
    p_w_id INT, p_d_id INT, p_c_id INT, p_last VARCHAR(16) CHARACTER SET latin1
)
BEGIN
    DECLARE v_c_id INT DEFAULT p_c_id;
    DECLARE v_middle, v_o_id INT;

    START TRANSACTION;
    IF p_c_id = 0 THEN
        SELECT (COUNT(*) - 1) DIV 2 INTO v_middle FROM customer
            WHERE c_w_id = p_w_id AND c_d_id = p_d_id AND c_last = p_last;
        SELECT c_id INTO v_c_id FROM customer
            WHERE c_w_id = p_w_id AND c_d_id = p_d_id AND c_last = p_last
            ORDER BY c_first LIMIT v_middle, 1;
    END IF;
    SELECT o_id INTO v_o_id FROM orders
        WHERE o_w_id = p_w_id AND o_d_id = p_d_id AND o_c_id = v_c_id
        ORDER BY o_id DESC LIMIT 1;
    SELECT c_id, c_first, c_last, c_balance, o_id, o_entry_d, o_carrier_id,
        ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d
        FROM customer, orders, order_line
        WHERE c_w_id = p_w_id AND c_d_id = p_d_id AND c_id = v_c_id
        AND o_w_id = p_w_id AND o_d_id = p_d_id AND o_id = v_o_id
        AND ol_w_id = p_w_id AND ol_d_id = p_d_id AND ol_o_id = v_o_id;
    COMMIT;
END
//
-- Delivery (clause 2.7.4), of the oldest order that is not delivered of each district, all in one
-- transaction. The oldest is first looked up without a lock: a lock on a range would keep other
-- districts' orders waiting. Only if somebody else has just delivered it, the range is locked.
CREATE PROCEDURE tpcc_delivery (p_w_id INT, p_carrier_id INT)
BEGIN
    DECLARE v_d_id INT DEFAULT 1;
    DECLARE v_o_id, v_c_id INT;
    DECLARE v_amount DECIMAL(12, 2);
    DECLARE v_delivered INT DEFAULT 0;
    DECLARE v_now DATETIME DEFAULT NOW();

    START TRANSACTION;
    WHILE v_d_id <= 10 DO
        SET v_o_id = NULL;
        SELECT MIN(no_o_id) INTO v_o_id FROM new_order
            WHERE no_w_id = p_w_id AND no_d_id = v_d_id;
        IF v_o_id IS NOT NULL THEN
            DELETE FROM new_order
                WHERE no_w_id = p_w_id AND no_d_id = v_d_id AND no_o_id = v_o_id;
            IF ROW_COUNT() = 0 THEN
                SET v_o_id = NULL;
                SELECT MIN(no_o_id) INTO v_o_id FROM new_order
                    WHERE no_w_id = p_w_id AND no_d_id = v_d_id FOR UPDATE;
                DELETE FROM new_order
                    WHERE no_w_id = p_w_id AND no_d_id = v_d_id AND no_o_id = v_o_id;
            END IF;
        END IF;
        IF v_o_id IS NOT NULL THEN
            UPDATE orders SET o_carrier_id = p_carrier_id, o_c_id = LAST_INSERT_ID(o_c_id)
                WHERE o_w_id = p_w_id AND o_d_id = v_d_id AND o_id = v_o_id;
            SET v_c_id = LAST_INSERT_ID();
            UPDATE order_line SET ol_delivery_d = v_now
                WHERE ol_w_id = p_w_id AND ol_d_id = v_d_id AND ol_o_id = v_o_id;
            SELECT SUM(ol_amount) INTO v_amount FROM order_line
                WHERE ol_w_id = p_w_id AND ol_d_id = v_d_id AND ol_o_id = v_o_id;
            UPDATE customer SET c_balance = c_balance + v_amount,
                c_delivery_cnt = c_delivery_cnt + 1
                WHERE c_w_id = p_w_id AND c_d_id = v_d_id AND c_id = v_c_id;
            SET v_delivered = v_delivered + 1;
        END IF;
        SET v_d_id = v_d_id + 1;
    END WHILE;
    COMMIT;
    SELECT v_delivered AS delivered;
END
//
-- Stock-Level (clause 2.8.2): items of the district's last 20 orders of which there are few left.
CREATE PROCEDURE tpcc_stock_level (p_w_id INT, p_d_id INT, p_threshold INT)
BEGIN
    DECLARE v_next_o_id INT;

    START TRANSACTION;
    SELECT d_next_o_id INTO v_next_o_id FROM district WHERE d_w_id = p_w_id AND d_id = p_d_id;
    SELECT COUNT(DISTINCT s_i_id) AS low_stock FROM order_line, stock
        WHERE ol_w_id = p_w_id AND ol_d_id = p_d_id
        AND ol_o_id >= v_next_o_id - 20 AND ol_o_id < v_next_o_id
        AND s_w_id = p_w_id AND s_i_id = ol_i_id AND s_quantity < p_threshold;
    COMMIT;
END
