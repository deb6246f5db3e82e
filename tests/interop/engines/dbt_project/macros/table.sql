{% materialization table, adapter="duckdb" %}
  {%- set target = this.incorporate(type="table") -%}
  {{ run_hooks(pre_hooks) }}
  {% call statement("main") -%}
    {% if load_cached_relation(this) is none %}
      {{ create_table_as(False, target, compiled_code) }}
    {% else %}
      delete from {{ target }};
      insert into {{ target }} by name {{ compiled_code }}
    {% endif %}
  {%- endcall %}
  {{ run_hooks(post_hooks) }}
  {% do adapter.commit() %}
  {{ return({"relations": [target]}) }}
{% endmaterialization %}
