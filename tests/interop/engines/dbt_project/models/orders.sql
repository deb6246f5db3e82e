{% if var("is_later", false) %}
select * from (values (1, 'IS', 10.5), (2, 'FO', 21.0), (3, 'IS', 5.0)) as orders (id, country, amount)
{% else %}
select * from (values (1, 'IS', 10.5), (2, 'DK', 20.0)) as orders (id, country, amount)
{% endif %}
