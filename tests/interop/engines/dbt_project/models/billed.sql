{{ config(materialized="incremental", unique_key="id") }}
select orders.id, countries.name, orders.amount::double as amount
from {{ ref("orders") }} as orders
join {{ ref("countries") }} as countries on orders.country = countries.code
{% if is_incremental() %}
where orders.id >= (select max(id) from {{ this }})
{% endif %}
